# `cmake --install build --prefix DIR --component runtime` installs the command. `./dev package` packs the same files
# into a .tar.gz. Component `wheel` adds the files that `pip install` also needs: the linker ld.lld.
include(GNUInstallDirs)

# Paths are relative, so that the installed folder can be moved. LLVM stays in Debian's folder.
set_target_properties(espalier PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
set_target_properties(espalier_format espalier_cuda espalier_c PROPERTIES INSTALL_RPATH "$ORIGIN")
set_target_properties(espalier_compiler espalier_verbs PROPERTIES INSTALL_RPATH "$ORIGIN;${LLVM_LIBRARY_DIR}")

install(TARGETS espalier RUNTIME DESTINATION bin COMPONENT runtime)
install(TARGETS espalier_format espalier_compiler espalier_verbs espalier_cuda espalier_c LIBRARY DESTINATION lib
        COMPONENT runtime)
install(FILES c_interface/espalier.h DESTINATION include COMPONENT runtime)
install(DIRECTORY configs DESTINATION share/espalier COMPONENT runtime FILES_MATCHING PATTERN "*.yaml" PATTERN "*.md"
        PATTERN "*.txt")
install(FILES LICENSE DESTINATION share/espalier COMPONENT runtime)

# Man pages, and completions of bash, zsh and fish, from the help of every verb: `ninja -C build command_pages`.
set(share ${CMAKE_BINARY_DIR}/share)
add_custom_command(OUTPUT ${share}/bash-completion/completions/espalier
  COMMAND ${CMAKE_SOURCE_DIR}/docs/command_pages.py $<TARGET_FILE:espalier> ${share}
  DEPENDS docs/command_pages.py espalier espalier_verbs VERBATIM)
add_custom_target(command_pages DEPENDS ${share}/bash-completion/completions/espalier)
install(DIRECTORY ${share}/ DESTINATION share COMPONENT runtime OPTIONAL)

add_subdirectory(python)

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME espalier)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_SOURCE_GENERATOR "")
include(CPack)
